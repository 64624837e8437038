"""What an upgrade or rollback changes: the three-way merge of files, packages and records, as a plan."""
