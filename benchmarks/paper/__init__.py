"""The paper's experiments: its data sets, every method it compares, and its tables beside ours."""
