"""Evidence: suites of runs and their reports, the theory at work, the noise of gradients, speed."""
