#!/usr/bin/env bash
# github.com/tiktoken-go/tokenizer registers generated Go code for the regular expressions of its
# tokenizers with github.com/dlclark/regexp2. A program that imports it gets this code for these
# expressions from regexp2 too. The code ends a match of \s*[\r\n]+ before U+00A0, and it matches no
# U+007F, which the tokenizers then drop. regexp2 alone and Python's re do neither.
#
# Seen with tokenizer 0.10.0 and regexp2 2.5.1, and cl100k's expression (Llama 3's):
#
#   regexp2 alone: "a\n\u00a0\nb" is ["a" "\n\u00a0\n" "b"]
#   regexp2 alone: "a \x7fb" is ["a" " \x7f" "b"]
#   with the import: "a\n\u00a0\nb" is ["a" "\n" "\u00a0\n" "b"]
#   with the import: "a \x7fb" is ["a" " " "b"]
set -euo pipefail
command -v go >/dev/null || { echo "no go"; exit 3; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir alone import
cat >alone/main.go <<'END'
package main

import (
	"fmt"

	"github.com/dlclark/regexp2/v2"
)

const cl100k = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

func main() {
	expression := regexp2.MustCompile(cl100k, regexp2.None)
	for _, text := range []string{"a\n\u00a0\nb", "a \x7fb"} {
		var pieces []string
		match, err := expression.FindStringMatch(text)
		for ; match != nil; match, err = expression.FindNextMatch(match) {
			pieces = append(pieces, match.String())
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf("%+q is %+q\n", text, pieces)
	}
}
END
sed 's|^	"github.com/dlclark/regexp2/v2"$|&\n	_ "github.com/tiktoken-go/tokenizer/codec"|' alone/main.go >import/main.go
{ go mod init finding && go get github.com/tiktoken-go/tokenizer@v0.10.0 github.com/dlclark/regexp2/v2@v2.5.1; } >log 2>&1 ||
	{ tail -n 3 log; echo "no package"; exit 3; }
echo "github.com/tiktoken-go/tokenizer 0.10.0, github.com/dlclark/regexp2/v2 2.5.1"
{
	go run ./alone | sed 's/^/regexp2 alone: /'
	go run ./import | sed 's/^/with the import: /'
} | tee seen
[ "$(cat seen)" = 'regexp2 alone: "a\n\u00a0\nb" is ["a" "\n\u00a0\n" "b"]
regexp2 alone: "a \x7fb" is ["a" " \x7f" "b"]
with the import: "a\n\u00a0\nb" is ["a" "\n" "\u00a0\n" "b"]
with the import: "a \x7fb" is ["a" " " "b"]' ]
