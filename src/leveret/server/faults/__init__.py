"""A listener whose connections fail on command, for brokers that tests run."""
