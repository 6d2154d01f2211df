"""The HTTP server: predictions of bundles by `thresher serve`. Loads no torch. Needs the extra `serve`."""
