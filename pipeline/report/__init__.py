"""Charts, template and writers of the weekly report."""
