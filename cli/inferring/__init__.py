"""A first task file for a CSV or Parquet file: `morrow task infer`."""
