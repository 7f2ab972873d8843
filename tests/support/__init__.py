"""What the tests share: the exporters and importers they go through, fake producers, and programs that they run."""
