package data

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// hidden are the namespaces of a German wiki.
var hidden = map[string]bool{"file": true, "image": true, "category": true, "datei": true, "kategorie": true}

func TestStrip(t *testing.T) {
	for _, c := range []struct{ name, page, want string }{
		{"plain", "Text, as it is: a-b (c) 3 > 2 | x = y.", "Text, as it is: a-b (c) 3 > 2 | x = y."},
		{"link", "a [[target]] b", "a target b"},
		{"label", "[[target|label]]s", "labels"},
		{"label with bars", "[[a|b|c]]", "b|c"},
		{"empty label", "[[target|]]", "target"},
		{"file", "a [[File:x.jpg|thumb|with a [[link|label]] and {{t}}]] b", "a b"},
		{"file of the wiki's language", "[[datei : x.jpg|mini]][[Kategorie:X]]y", "y"},
		{"link to a file", "[[:File:x.jpg]] [[:Category:X|the X]]", "File:x.jpg the X"},
		{"namespace that is text", "[[Star Trek: Voyager]]", "Star Trek: Voyager"},
		{"external", "see [https://a.b/c?d=e the page], [http://a.b]!", "see the page, !"},
		{"external, line ends", "[https://a.b c\nd] e", "[https://a.b c\nd] e"},
		{"address", "at https://a.b/c now", "at https://a.b/c now"},
		{"brackets", "a [b] [[c] d]] e", "a [b] c] d e"},
		{"template", "a {{t|x={{u|y}}|z}} b", "a b"},
		{"template over lines", "{{Infobox\n| a = [[b]]\n|}}\nText", "Text"},
		{"template with a table", "{{t|\n{| \n| a\n|}\n}}b", "b"},
		{"parameter", "{{{1|default}}} x {{{1}}}y", "x y"},
		{"parameter in a template", "{{{{{1}}}}} y {{a|{{{b|}}}}} {{a|{{{b|{{{c}}}}}}}}z", "y z"},
		{"template in a template's name or a parameter's", "{{{{{a}}b}}}x {{{{a}} b}}y", "x y"},
		{"braces beyond", "{{{a}} {{{{a}}}} {{a}}} {{a{b}}}", "{ {} } }"},
		{"table", "a\n{| class=\"x\"\n! h\n|-\n| a || {{t|\n|}}\n|}\nb", "a\n\nb"},
		{"table in a table", ":{|\n|\n{|\n|x\n|}\n|y\n|}\nb", "b"},
		{"table is not closed", "a\n{|\nb", "a\n{|\nb"},
		{"template is not closed", "a {{b [[c|d]]\n\ne", "a {{b d\n\ne"},
		{"template closes what is within", "{{a [[b}} c", "c"},
		{"link closes nothing beyond", "[[a {{b]] }} c]]", "a c"},
		{"nothing to close", "a }} b ]] c ] d\n|} e", "a }} b ]] c ] d\n|} e"},
		{"headings", "== One ==\ntext\n=== Two=== \n=Three=\n====\n= a", "One\ntext\nTwo\nThree\n====\n= a"},
		{"heading with markup", "== ''a'' [[b|c]] = d ==", "a c = d"},
		{"equals", "a == b ==", "a == b =="},
		{"quotes", "''a'' '''b''' '''''c''''' d'e ''''f'''' '''''''g", "a b c d'e 'f' ''g"},
		{"lists", "* a\n** b\n# c\n; d : e\n:: f", "a\nb\nc\nd : e\nf"},
		{"rule", "a\n-----\nb -- c", "a\n\nb -- c"},
		{"other language", "a[[fr:Bonjour]][[zh-min-nan : x]]\n[[roa-rup:y]]\nb", "a\n\nb"},
		{"other language, to be seen", "[[:fr:Bonjour]] [[fr:Bonjour|hello]]", "fr:Bonjour hello"},
		{"no language", "[[FR:x]] [[a:x]] [[wikt:x]] [[fr]] [[fr-:x]] [[f1:x]]", "FR:x a:x wikt:x fr fr-:x f1:x"},
		{"switches", "__NOTOC__a __init__ b __TOC____ __EXPECTED_UNCONNECTED_PAGE__c___NOINDEX__", "a __init__ b __ c_"},
		{"no switches", "snake__CASE__x __TOC_ __TOC __ __toc__ ____ __", "snake__CASE__x __TOC_ __TOC __ __toc__ ____ __"},
		{"ref", "a<ref name=\"x\">{{b}} ''c</ref>.<ref name=x/> d<Ref>e</REF >", "a. d"},
		{"ref is not closed", "a<ref>b", "ab"},
		{"math", "a <math>\\frac{{1}{2}}</math> b", "a b"},
		{"only in templates", "<includeonly>x</includeonly>y <noinclude>z</noinclude> <includeonly/>", "y z"},
		{"tags", "<b>a</b><br/>b<br>c <span style=\"x\">d</span> <h2>e</h2>", "a\nb\nc d e"},
		{"no tags", "a < b, c <d, <3 e> <f@g.h>", "a < b, c <d, <3 e> <f@g.h>"},
		{"nowiki", "<nowiki>[[a]] ''b'' &lt;</nowiki> <nowiki/>''", "[[a]] ''b'' <"},
		{"code", "<syntaxhighlight lang=\"c\">\n  if (a)\n      b[[1]];\n</syntaxhighlight>", "\n  if (a)\n      b[[1]];"[1:]},
		{"comment", "a<!-- [[b]] -->c<!-- d", "ac"},
		{"entities", "&amp;amp; &lt;b&gt; &nbsp;&#65;&#x42; &eacute; &semi;", "&amp; <b> \u00a0AB é ;"},
		{"no entities", "a & b &c; &copy=1 &notit; &", "a & b &c; &copy=1 &notit; &"},
		{"entities begin no markup", "&#91;[a]] &#39;&#39;", "[[a]] ''"},
		{"spaces", "  a   b \t c  \n\n\n\n  d\n \n", "a b c\n\nd"},
		{"nothing", " {{a}}\n[[Category:b]]\n", ""},
		{"other scripts", "'''Москва́''' — [[столица|столи́ца]] «России»\u3000中文", "Москва́ — столи́ца «России»\u3000中文"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strip(c.page, hidden); got != c.want {
				t.Errorf("%q\ngot  %q\nwant %q", c.page, got, c.want)
			}
		})
	}
}

// Pages written to be slow take no longer than others.
func TestStripIsLinear(t *testing.T) {
	check := func(name, page string) {
		began := time.Now()
		strip(page, hidden)
		// A square of the size, at a byte a nanosecond, is more than a minute.
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%q: %v for %d bytes", name, took, len(page))
		}
	}
	const size = 1 << 18
	for _, unit := range []string{"{", "{{", "}}", "{{{a", "[[", "]]", "[[a|", "[[a|b]]", "{|\n", "|}\n", "{{a\n|}", "[http://", "[http://a b", "[http://a\n",
		"'", "''a", "<", "<a", "<ref>", "<ref", "<nowiki>", "</ref", "<ref></re", "<b>", "&", "&a", "&amp", "_", "__A", "=", "\n=", "\n= =", "= \n", "*", "\n*", "<!--", "<!---->", " ", "\n", "-"} {
		check(unit, strings.Repeat(unit, size/len(unit)))
		check("[["+unit+"]]", "[["+strings.Repeat(unit, size/len(unit))+"]]")
	}
	// Brackets in brackets, around a text that each could move.
	const depth = size / 10
	text := strings.Repeat("x", size/4)
	for _, b := range [][2]string{{"[[a|", "]]"}, {"[[", "]]"}, {"[http://a ", "]"}, {"{{", "}}"}, {"{{{a", "}}}"}, {"\n{|", "\n|}"}} {
		check(b[0]+"…"+b[1], strings.Repeat(b[0], depth)+text+strings.Repeat(b[1], depth))
	}
}

// The text of any page has no empty lines in a row, and is at most twice as long: of all entities &nGt; grows most, to 6 bytes.
func FuzzStrip(f *testing.F) {
	for _, page := range []string{
		"'''A''' [[b|c]] {{d|e={{f}}}} <ref>g</ref>\n== H ==\n* [https://i.j k]\n{|\n|l\n|}\n<!-- m -->&amp;&#65;__TOC__",
		"[[File:a|b [[c]] {{d}}]]", "{{a\n|}}", "<nowiki>''</nowiki><pre> x</pre><math>{{</math>", "&nGt;&nLt;", "<ref name=\"a\" /><Ref>b</reF>", "''''''", "é\u00a0中",
	} {
		f.Add(page)
	}
	f.Fuzz(func(t *testing.T, page string) {
		if !utf8.ValidString(page) {
			return
		}
		got := strip(page, hidden)
		switch {
		case !utf8.ValidString(got):
			t.Errorf("%q: %q is not UTF-8", page, got)
		case len(got) > 2*len(page):
			t.Errorf("%d bytes of %d", len(got), len(page))
		case strings.Contains(got, "\n\n\n") || strings.TrimRight(got, " \t\r\n") != got:
			t.Errorf("%q: %q is not tidy", page, got)
		}
		if !strings.ContainsAny(page, "{}[]|'<&_=*#:;- \t\r\n") && got != page {
			t.Errorf("%q: %q, without any markup", page, got)
		}
	})
}
