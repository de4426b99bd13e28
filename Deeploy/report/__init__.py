"""Reports from a project folder."""

from Deeploy.report.summary import html_of, l3_of, summary_of, text_of

__all__ = ["html_of", "l3_of", "summary_of", "text_of"]
