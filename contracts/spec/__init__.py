"""Parts of a task's spec: settings of LightGBM and of the log of predictions, and values as people write them."""
