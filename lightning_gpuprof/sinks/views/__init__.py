"""The views of a report: each a function from a report to a part of an HTML page, for the page and the tab."""
