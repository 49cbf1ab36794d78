"""The verdict: what a run says first."""

from ood_lab.report.verdict.rules import Verdict as Verdict
