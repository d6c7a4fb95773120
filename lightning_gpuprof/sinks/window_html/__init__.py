"""From what the analyses of a trace found to parts of HTML: the page of a run and that of one trace show the same."""
