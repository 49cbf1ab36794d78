"""Yes or no: what a reply says, and the strict rule."""

from __future__ import annotations

from ood_lab.lvlm.parsers.answer_words import plain, said_at_start, said_by_a_word
from ood_lab.lvlm.parsers.asked_things import asked_by
from ood_lab.lvlm.parsers.base import (
    NO,
    OURS,
    YES,
    parser,
    parser_with_question,
    words_of,
)
from ood_lab.lvlm.parsers.chinese_japanese import is_in_characters, said_in_characters
from ood_lab.lvlm.parsers.choices import chosen_option
from ood_lab.lvlm.parsers.explicit_answers import explicit_answers, settled
from ood_lab.lvlm.parsers.sentence_claims import is_refusal, said_by_sentences


@parser_with_question(
    "an explicit answer; else yes or no as first or last word; else a sentence about the object "
    "in the question",
)
def default(reply: str, question: str) -> str | None:
    r"""What a person reads, as far as rules can say, in this order.

    1. An explicit answer: "final answer: yes", "the answer is no", ``\boxed{}``, JSON,
       ``<answer>``, the letter of an option.
    2. A first or last word that is an answer by itself, in English, Chinese, French, German,
       Japanese, Portuguese or Spanish. "No" before a noun, "yes or no" and refusals are none.
    3. A sentence about the very object: there is, shows, contains, I see, and their negations.

    Else nothing.
    """
    subject, text = asked_by(question), plain(reply)
    for part in (*explicit_answers(reply), None):
        if part is None and is_refusal(text):
            return None
        whole = reply if part is None else part
        letter = chosen_option(whole, subject.options, texts=False) if subject.options else None
        if letter:
            return said_at_start(plain(subject.options[letter]))
        if part is not None and (answer := said_at_start(plain(part))):
            return answer

    def says(words: str) -> str | None:
        if is_in_characters(words):
            return said_in_characters(words, subject.names)
        return said_by_a_word(words) or said_by_sentences(words, subject, question)

    return settled(text, says)


@parser(OURS, "the only word, punctuation aside")
def strict(reply: str) -> str | None:
    """The reply is nothing but yes or no; case and the punctuation around it are ignored."""
    words = words_of(reply)
    return words[0] if len(words) == 1 and words[0] in (YES, NO) else None
