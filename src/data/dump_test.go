package data

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"dynmo/src/expect"
)

const wiki = `<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">
  <siteinfo><sitename>Wikipedia</sitename><namespaces><namespace key="0" case="first-letter" />
    <namespace key="6">Datei</namespace><namespace key="10">Vorlage</namespace></namespaces></siteinfo>
  <page><title>A</title><ns>0</ns><id>1</id><revision><id>2</id><contributor><username>x</username></contributor>
    <model>wikitext</model><text bytes="9" xml:space="preserve">'''A''' &amp;amp; [[Datei:x|y]] &lt;b&gt;b&lt;/b&gt;</text></revision></page>
  <page><title>B</title><ns>0</ns><redirect title="A" /><revision><text>#WEITERLEITUNG [[A]]</text></revision></page>
  <page><title>Diskussion:A</title><ns>1</ns><revision><text>talk</text></revision></page>
  <page><title>A.css</title><ns>0</ns><revision><model>css</model><text>css</text></revision></page>
  <page><title>C</title><ns>0</ns><revision><text deleted="deleted" /></revision></page>
  <page><title>D</title><ns>0</ns><revision><text>old</text></revision><revision><text>n<![CDATA[&]]>w</text></revision></page>
  <page><title>E</title><ns>0</ns><revision><text>{{nothing}}</text></revision></page>
</mediawiki>`

// Streams of bzip2, written by Python's bz2: the beginning of a dump, whose
// files are called Datei; a page of 16,384 times "”word” " (147,553 bytes);
// and the end.
const (
	packedHead = "QlpoOTFBWSZTWbXSRgcAAA0dgFAD4RcEAC/v3OAgAGoSqaBptT1GTTQA0BKo9JoGgMhiGIhJWpT4k7Vw3fQmr7YQ7SJR97mybGNLGhMNnG4OIkx9SCA2eBTNRfIiIbktBhDnYPhWpXad0LtJKDtiTxVpCWOIn0axlxG4/F3JFOFCQtdJGBw="
	packedPage = "QlpoOTFBWSZTWS+P6REAoAhdgAAQQIDABSAAJq/dwDAAuAoABoGTIKAAaBkyAqU0mkaAj1H6I1uAANgACtJJJJJJJcAA6JfPWmNqdbTvrnerXv+0tj/ZAAMt8Wt+NHabue7lxhx6U4z6Wrlq7AAF9MAAFVuw+S19FqbP74AAVPou5IpwoSBfH9Ii"
	packedTail = "QlpoOTFBWSZTWe2+c6oAAAFZgAAQAACABSYqAIAgACIGhpoIBppoAksUl1rvF3JFOFCQ7b5zqg=="
	pageSize   = 147553
)

// packedDump returns a dump of a number of pages, a stream of bzip2 each.
func packedDump(t testing.TB, pages int) []byte {
	t.Helper()
	part := func(text string) []byte {
		raw, err := base64.StdEncoding.DecodeString(text)
		expect.OK(t, err)
		return raw
	}
	return slices.Concat(part(packedHead), bytes.Repeat(part(packedPage), pages), part(packedTail))
}

// letters is a tokenizer for tests: a byte an id, and 256 after a document.
func letters() Tokenizer {
	return Tokenizer{Vocab: 257, endOfText: 256, cut: cut, encoder: func() *encoder {
		return &encoder{piece: func(text string) int { return len(text) }, ask: func(piece string) ([]int32, error) {
			ids := make([]int32, len(piece))
			for i := range ids {
				ids[i] = int32(piece[i])
			}
			return ids, nil
		}, known: map[string][]int32{}}
	}}
}

// documents splits what letters wrote into documents.
func documents(tokens []int32) []string {
	var text []byte
	for _, id := range tokens {
		if id == 256 {
			id = 0 // which is in no text here
		}
		text = append(text, byte(id))
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// A folder of text and dumps, packed or not: articles without their markup, in
// order, with any number of workers.
func TestPrepareDumps(t *testing.T) {
	dir := tree(t, map[string]string{"a.xml": wiki, "b.txt": "text", "c.xml.bz2": string(packedDump(t, 3)), "d.xml": "<mediawiki/>"})
	word := strings.TrimSpace(strings.Repeat("word ", 1<<14))
	want := []string{"A & b", "n&w", "text", word, word, word}
	size := 0
	for _, d := range want {
		size += len(d)
	}
	for _, workers := range []int{1, 4} {
		p := Preparation{Tokenizer: letters(), Inputs: []string{dir}, Output: filepath.Join(t.TempDir(), "o.bin"), Format: Megatron, Workers: workers}
		var read, total int64
		done, err := p.Run(context.Background(), func(r, t int64) { read, total = r, t })
		expect.OK(t, err)
		f, tokens := all(t, p.Output)
		if got := documents(tokens); !slices.Equal(got, want) || f.Documents != int64(len(want)) {
			t.Errorf("%d workers: %d documents, %.99q, want %.99q", workers, f.Documents, got, want)
		}
		if done != (Prepared{len(want), int64(size), int64(size + len(want))}) {
			t.Errorf("%+v", done)
		}
		if in, err := list(dir, nil, 0); err != nil || read != total || total != in[0].size+in[1].size+in[2].size+in[3].size {
			t.Errorf("%d of %d bytes told; %v", read, total, err)
		}
	}
}

// The dump is larger than the memory it is prepared in.
func TestPrepareDumpInBoundedMemory(t *testing.T) {
	const count, bound = 300, 32 << 20 // 44 MB of XML, 25 MB of text
	dir := tree(t, map[string]string{"a.xml.bz2": string(packedDump(t, count))})
	p := Preparation{Tokenizer: letters(), Inputs: []string{dir}, Output: filepath.Join(dir, "o.bin"), Format: LLMC, Workers: 2}
	heap := func() int64 {
		runtime.GC() // counts what is held, not what was
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most, calls := heap(), int64(0), 0
	done, err := p.Run(context.Background(), func(int64, int64) {
		if calls++; calls%10 == 0 {
			most = max(most, heap()-before)
		}
	})
	if err != nil || done.Documents != count {
		t.Fatalf("%+v, %v", done, err)
	}
	t.Logf("%d bytes of XML, at most %d held", count*pageSize, most)
	if count*pageSize < bound || most > bound {
		t.Errorf("%d bytes held, want at most %d", most, bound)
	}
}

// endless is a dump whose page never ends.
type endless struct{ rest string }

func (e *endless) Read(p []byte) (int, error) {
	if e.rest == "" {
		e.rest = strings.Repeat("x", 1<<16)
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

func TestArticlesRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "byte 0: the file ends where <mediawiki> should begin"},
		{"spaces", " \n", "byte 2: the file ends where <mediawiki> should begin"},
		{"another root", "<?xml version=\"1.0\"?>\n<html>", "byte 22: <html>, want one <mediawiki>, the root of a dump: leave other files out (--extensions)"},
		{"two roots", "<mediawiki/><mediawiki>", "byte 12: <mediawiki>, want one <mediawiki>"},
		{"text behind", "<mediawiki/> x", "byte 12: text outside of <mediawiki>"},
		{"no XML", "plain text", "byte 0: text outside of <mediawiki>"},
		{"cut short", "<mediawiki>", "byte 11: XML syntax error on line 1: unexpected EOF"},
		{"wrong end", "<mediawiki><page></pages>", "byte 25: XML syntax error on line 1: element <page> closed by </pages>"},
		{"unknown entity", "<mediawiki>&eacute;</mediawiki>", "byte 19: XML syntax error on line 1: invalid character entity &eacute;"},
		{"not UTF-8", "<mediawiki>\xff</mediawiki>", "XML syntax error on line 1: invalid UTF-8"},
		{"another encoding", `<?xml version="1.0" encoding="latin1"?><mediawiki/>`, `byte 39: xml: encoding "latin1" declared`},
		{"no namespace", "<mediawiki><page></page></mediawiki>", "byte 17: a page without <ns>: want a dump of MediaWiki 1.20 or later"},
		{"a tag in text", "<mediawiki><page><revision><text>a<b>", "byte 34: <b> where there is only text in a dump"},
		{"too deep", "<mediawiki>" + strings.Repeat("<a>", 11), "byte 38: <a> is the 11th element inside another"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := articles("x.xml", strings.NewReader(c.text), func(string, map[string]bool) error { return nil })
			if _, ok := errors.AsType[InputError](err); !ok || !strings.HasPrefix(err.Error(), "x.xml: byte ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	for n := range wiki {
		if err := articles("x.xml", strings.NewReader(wiki[:n]), func(string, map[string]bool) error { return nil }); err == nil {
			t.Errorf("cut to %d bytes of %d: read", n, len(wiki))
		}
	}
	for _, begin := range []string{"<mediawiki><page><revision><text>", "<mediawiki><!--", `<mediawiki a="`, "<mediawiki "} {
		err := articles("x.xml", &endless{begin}, func(string, map[string]bool) error { return nil })
		if want := "x.xml: byte 16777216: a page of more than 16777216 bytes"; err == nil || err.Error() != want {
			t.Errorf("%s…: got %v, want %s", begin, err, want)
		}
	}
}

// Packed dumps cut short or changed anywhere: one error, that names the byte,
// and no output.
func TestPrepareRefusesPackedDumps(t *testing.T) {
	whole := packedDump(t, 1)
	head, err := base64.StdEncoding.DecodeString(packedHead)
	expect.OK(t, err)
	// try wants an error, or with want "" one or the text unharmed.
	try := func(name string, raw []byte, want string) {
		t.Helper()
		dir := tree(t, map[string]string{"x.xml.bz2": string(raw)})
		path := filepath.Join(dir, "x.xml.bz2")
		p := Preparation{Tokenizer: letters(), Inputs: []string{path}, Output: filepath.Join(dir, "o.bin"), Format: LLMC, Workers: 2}
		done, err := p.Run(context.Background(), func(int64, int64) {})
		if want == "" && err == nil && done == (Prepared{1, 5<<14 - 1, 5 << 14}) {
			return
		}
		if _, ok := errors.AsType[InputError](err); !ok || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s…%s", name, err, path, want)
		}
		if _, err := os.Stat(p.Output); err == nil {
			t.Errorf("%s: an output is left behind", name)
		}
	}
	for n := 1; n < len(whole); n += 7 {
		want := fmt.Sprintf(": byte %d: unexpected EOF", n)
		if n == len(head) {
			want = "unexpected EOF" // of the XML
		}
		try(fmt.Sprintf("cut to %d bytes", n), whole[:n], want)
	}
	try("cut between streams", whole[:len(head)], " (unpacked): byte 143: XML syntax error on line 1: unexpected EOF")
	for position := range whole {
		raw := bytes.Clone(whole)
		raw[position] ^= 0x10
		if position%7 == 0 {
			try(fmt.Sprintf("byte %d changed", position), raw, "")
		}
	}
	try("text behind", append(bytes.Clone(whole), "more"...), ": byte ")
	try("no bzip2", []byte(wiki), "x.xml.bz2: byte ")
	try("a text of another kind", []byte("\xff\xfe\x00"), "x.xml.bz2: byte ")
}

// A dump is refused, or its articles are text from it.
func FuzzArticles(f *testing.F) {
	f.Add([]byte(wiki))
	f.Add([]byte("<mediawiki><page><ns>0</ns><revision><text>a</text></revision></page></mediawiki>"))
	f.Add([]byte("<?xml version=\"1.0\" encoding=\"UTF-8\"?><!DOCTYPE a><mediawiki><!-- b --><page/></mediawiki>"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		size := 0
		err := articles("x", bytes.NewReader(raw), func(page string, hidden map[string]bool) error {
			if size += len(page); page == "" || !utf8.ValidString(page) || !hidden["file"] {
				t.Errorf("page %q", page)
			}
			strip(page, hidden)
			return nil
		})
		if err != nil && !strings.HasPrefix(err.Error(), "x: byte ") {
			t.Errorf("error %v names no byte", err)
		}
		if size > len(raw) {
			t.Errorf("pages of %d bytes in %d", size, len(raw))
		}
	})
}

// FuzzUnpack: bzip2 of foreign bytes ends, with an error that names the byte or
// none.
func FuzzUnpack(f *testing.F) {
	f.Add(packedDump(f, 1))
	f.Add([]byte("BZh91AY&SY"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "x.xml.bz2")
		expect.OK(t, os.WriteFile(path, raw, 0o600))
		read := int64(0)
		err := pages(path, func(w work) error {
			read += w.read
			return nil
		})
		if err == nil && read != int64(len(raw)) {
			t.Errorf("%d of %d bytes accounted for", read, len(raw))
		}
		if err != nil && !strings.HasPrefix(err.Error(), path) {
			t.Errorf("error %v", err)
		}
	})
}
