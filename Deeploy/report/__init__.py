"""Reports from a project folder."""

from Deeploy.report.summary import l3_of, summary_of, text_of

__all__ = ["l3_of", "summary_of", "text_of"]
