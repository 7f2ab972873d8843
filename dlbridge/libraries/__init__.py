"""What is known of each library, as data: a file each."""
