"""What `thresher.integrations.torchrec` consists of."""
