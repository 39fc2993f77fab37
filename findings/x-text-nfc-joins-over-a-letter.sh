#!/usr/bin/env bash
# Go's golang.org/x/text/unicode/norm joins a letter with a combining mark behind another letter. A
# letter stands between the two, so that form C of Unicode (UAX 15) keeps them apart, as Python's
# unicodedata does. Byte-pair encodings such as Qwen's put texts in form C first: a tokenizer that does
# so with this package gives other ids.
#
# Seen with golang.org/x/text 0.23.0 and 0.41.0, where U+0DCF and U+09BE are the letters between:
#
#   "o\u0dcf\u05ae\u0300": x/text "\u00f2\u0dcf\u05ae", unicodedata 'o\u0dcf\u05ae\u0300'
#   "a\u09be\u0316\u0301": x/text "\u00e1\u09be\u0316", unicodedata 'a\u09be\u0316\u0301'
#
# It was not seen with 0.42.0 to 0.44.0.
set -euo pipefail
for tool in go python3; do
	command -v "$tool" >/dev/null || { echo "no $tool"; exit 3; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >main.go <<'END'
package main

import (
	"fmt"

	"golang.org/x/text/unicode/norm"
)

func main() {
	for _, text := range []string{"o\u0dcf\u05ae\u0300", "a\u09be\u0316\u0301"} {
		fmt.Printf("%+q: x/text %+q\n", text, norm.NFC.String(text))
	}
}
END
cat >python.py <<'END'
import unicodedata

for text in "o\u0dcf\u05ae\u0300", "a\u09be\u0316\u0301":
    print("unicodedata", ascii(unicodedata.normalize("NFC", text)))
END
{ go mod init finding && go get golang.org/x/text@v0.23.0; } >log 2>&1 || { tail -n 3 log; echo "no package"; exit 3; }
echo "golang.org/x/text 0.23.0, $(python3 -c 'import unicodedata; print("Unicode", unicodedata.unidata_version, "in Python")')"
go run . >go.txt
python3 python.py >python.txt
paste -d , go.txt python.txt | sed 's/,/, /'
[ "$(cat go.txt python.txt)" = '"o\u0dcf\u05ae\u0300": x/text "\u00f2\u0dcf\u05ae"
"a\u09be\u0316\u0301": x/text "\u00e1\u09be\u0316"
unicodedata '"'o\u0dcf\u05ae\u0300'"'
unicodedata '"'a\u09be\u0316\u0301'" ]
