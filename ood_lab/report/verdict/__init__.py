"""The verdict: what a run, or a leaderboard, says first."""

from ood_lab.report.verdict.rules import WORDS as WORDS
from ood_lab.report.verdict.rules import BoardVerdict as BoardVerdict
from ood_lab.report.verdict.rules import Verdict as Verdict
