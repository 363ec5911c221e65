"""What the jobs' HTML pages are made of."""
