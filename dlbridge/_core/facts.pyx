"""What the files of libraries/ name, as bits."""
