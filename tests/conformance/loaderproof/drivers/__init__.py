"""One file per loader. loaderproof.driver says what a driver is."""
