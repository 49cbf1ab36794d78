"""Replies in Chinese and Japanese: what they claim, and their numerals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import numeric

from ood_lab.lvlm.parsers.base import NO, YES, only

#: Han characters and kana.
CHARACTERS = re.compile(r"[\u3005\u3040-\u30ff\u4e00-\u9fff]")
#: What stands between a numeral and the thing that it counts; groups and kinds are no units.
MEASURES = (
    "只隻个個匹头頭条條位名辆輛张張台把件棵朵羽艘座间間本枚人つ片颗顆根支枝盏盞架瓶杯块塊幅副"
)
_NUMERALS = "零〇两兩一二三四五六七八九十百"
_NUMERAL = re.compile(
    rf"(?<![第唯统每几数])[{_NUMERALS}]+(?=(?:(?:或者?|到|至|、)[{_NUMERALS}\d]+)?[{MEASURES}])"
    rf"|(?<=[是为為有共:：=])[{_NUMERALS}]+(?=\W|$)"
    rf"|^\W*[{_NUMERALS}]+(?=\W*$)"
)
#: "In this picture", before an answer.
_PICTURE = re.compile(
    r"^(?:是的?[,，]?)?在?[这這此该該]?[张張幅]?(?:图[片像]?|圖[片像]?|画[面像]|照片)"
    r"[中里裡上内内]*(?:には|に)?[,，、]?"
)
_CLAUSE = re.compile(
    r"([^，,。.!！;；、？?\n\s]+?)(?:(?=但是?|不过|不過|而是|却|卻)|[，,。.!！;；、？?\n\s]+|$)"
)
#: Doubts, refusals and questions told again.
_NO_CLAIM = re.compile(
    r"吗|嗎|？|\?|是否|是不是|有没有|是[还或]|可能|也许|或许|不[确確]定|不知道|不太?清楚|不一定"
    r"|不好说"
    r"|看不清|无法|無法|不能|好像|应该|ようです|证据|是错误?的|是假的|似乎|大概|对不起|對不起|抱歉"
    r"|没问题"
    r"|如果|[分わ]か[りら]"
    r"|知りません|不是没|并非没|かもしれ|でしょう"
    r"|不明|ですか|ますか|はいか|(?:没有?|看不(?:到|见))(?:任何)?(?:图|照|圖|画像)"
    r"|画像は?(?:が|は)?(?:見え|あり)ません"
)
#: A whole clause that is an answer by itself.
_WHOLE = {
    NO: r"(?:我(?:认为|觉得|想)|当然|绝对|肯定|并|都|也)?(?:[没沒]有?|无|無|否|不|不是|不对|不對"
    r"|不存在|未[发發]现|未見|未见|错误?|并非(?:如此)?|我?(?:没有?|没|未)(?:看|发|找)[到见現现]"
    r"|我?看不[到见])|いいえ|いえ|違います",
    YES: r"(?:我(?:认为|觉得|想)|确实|当然|確實)?(?:是|有|对|對|存在|包含"
    r"|正确|没错|能|可以|我?(?:能|可以)?看[到见])|はい|ええ|うん|そうです",
}
_ENDS = r"(?:的|啊|呢|了|哦|です)?"
_NEGATION = re.compile(
    r"[没沒]有?|未|无|無|不(?:是|存在|包含|含|见|見|在)|并非|非(?=[^常])|看不[到见]|ません|ない"
    r"|なし"
)
_ASSERTION = re.compile(
    r"有|是|在|存在|包含|看[到见見]|[发發]现|[显顯]示|出现|ありま?[すり]|いま[す]|いる|ある|見え"
    r"|です"
    r"|写って"
)
#: Of a clause, what names no thing.
_NEEDLESS = re.compile(
    rf"任何|这|這|那|里|裡|图[片像]?|圖[片像]?|画[面像]|照片|中|上|内|我|能|可以|只|并|都|也|确实"
    rf"|其他|其它"
    rf"|[{_NUMERALS}\d]+[{MEASURES}]|[的了着在到见見]|[\u3040-\u309f]+|\W"
)


def is_in_characters(text: str) -> bool:
    """Whether a text has more of them than of Latin letters: a sign in an image may be Chinese."""
    return len(CHARACTERS.findall(text)) > len(re.findall("[A-Za-z]", text))


def said_in_characters(text: str, names: Sequence[str] = ()) -> str | None:
    """What the clauses of a plain text claim of a thing; None where nothing or both.

    Where its ``names`` are not known, a clause that denies a thing denies this one ("没有水壶"),
    and one that asserts a thing says nothing.
    """
    text = re.sub(r"[「」『』\"']", "", text)
    claims = {_claim(results[1], names, results[0]) for results in _CLAUSE.finditer(text)} - {None}
    return only(claims)


def _claim(clause: str, names: Sequence[str], sentence: str) -> str | None:
    if _NO_CLAIM.search(sentence):
        return None
    clause = _PICTURE.sub("", clause)
    for reply, way in _WHOLE.items():
        if re.fullmatch(rf"(?:{way}){_ENDS}", clause):
            return reply
    denied = _NEGATION.search(clause)
    thing = _NEEDLESS.sub("", _ASSERTION.sub("", _NEGATION.sub("", clause)))
    if not denied and not _ASSERTION.search(clause):
        return YES if thing in names else None
    if thing and (not any(name in clause for name in names) if names else not denied):
        return None  # another thing, or one that is not known
    return NO if denied else YES


def with_digits(text: str) -> str:
    """A text whose numerals before a measure word, or by themselves, are digits.

    Neighbours, as in "三四只", are a range: "3-4".
    """

    def digits(results: re.Match[str]) -> str:
        numbers = [int(numeric(c)) for c in results[0].replace("两", "兩") if c in _NUMERALS]
        if re.fullmatch(r"[一二三四五六七八九两兩]{2}", results[0].strip()):
            return "-".join(map(str, numbers))
        value, unit = 0, 0
        for number in numbers:
            if number >= 10:
                value, unit = value + max(unit, 1) * number, 0
            else:
                unit = number
        return str(value + unit)

    return _NUMERAL.sub(digits, text)
