"""The parts of the jobs' HTML pages."""
