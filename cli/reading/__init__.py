"""Files as people have them: opened, decompressed, decoded and split, with moments and numbers as tools write them."""
