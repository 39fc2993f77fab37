package data

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
)

// A dump of a wiki (mediawiki.org, Help:Export) is XML:
//
//	<mediawiki>
//	  <siteinfo> <namespaces> <namespace key="6">File</namespace> … </namespaces> </siteinfo>
//	  <page>
//	    <title>…</title> <ns>0</ns> <redirect title="…"/>
//	    <revision> <model>wikitext</model> <text>…</text> </revision>
//	  </page> …
//	</mediawiki>
const (
	dumpRoot       = "/mediawiki"
	namespacePath  = dumpRoot + "/siteinfo/namespaces/namespace"
	pagePath       = dumpRoot + "/page"
	spacePath      = pagePath + "/ns"
	redirectPath   = pagePath + "/redirect"
	revisionPath   = pagePath + "/revision"
	modelPath      = revisionPath + "/model"
	revisionText   = revisionPath + "/text"
	deepestElement = 10 // twice the depth of a dump

	articleSpace  = "0" // keys of namespaces
	fileSpace     = "6"
	categorySpace = "14"
	wikitext      = "wikitext" // model of a page whose text is markup

	// longestPage bounds a page in a dump, in bytes: eight times the longest text that MediaWiki
	// accepts by default.
	longestPage = 16 << 20
)

// dump is the state of reading a dump.
type dump struct {
	name   string // in errors
	in     *allowance
	xml    *xml.Decoder
	path   string // path of the open element
	depth  int
	begin  int64           // begin of the current token, in bytes
	hidden map[string]bool // names of namespaces whose links are not visible
	key    string          // key of the open namespace
	keeps  bool            // whether the content of the open element is collected in chars
	chars  []byte
	rooted bool // whether the root has begun
	paged  bool // whether a page has begun
	page   page
}

// page is a page of a dump.
type page struct {
	space, model, text string
	redirect           bool
}

// articles reads a dump and yields the markup of the pages that are articles and no redirects.
// hidden has the names, in lower case, of the namespaces whose links are not visible (files and
// categories). If a page has several revisions the last one counts. Errors: malformed XML, XML that
// is no dump, a page that is too long, and the errors of r and of yield.
func articles(name string, r io.Reader, yield func(markup string, hidden map[string]bool) error) error {
	d := &dump{name: name, in: &allowance{bufio.NewReader(r), longestPage}}
	d.hidden = map[string]bool{"file": true, "image": true, "category": true} // MediaWiki accepts these names in all languages
	d.xml = xml.NewDecoder(d.in)
	for {
		d.begin = d.xml.InputOffset()
		token, err := d.xml.Token()
		if errors.Is(err, io.EOF) {
			if !d.rooted {
				return d.fail("the file ends where <mediawiki> should begin")
			}
			return nil
		}
		if err != nil {
			if _, ok := errors.AsType[InputError](err); ok { // error of decompression
				return err
			}
			d.begin = d.xml.InputOffset()
			return d.fail("%.200s", err.Error()) // the message may quote the file
		}
		switch t := token.(type) {
		case xml.StartElement:
			err = d.start(t)
		case xml.CharData:
			err = d.text(t)
		case xml.EndElement:
			err = d.end(yield)
		}
		if err != nil {
			return err
		}
	}
}

func (d *dump) fail(format string, args ...any) error {
	return InputError{broken(d.name, d.begin, format, args...)}
}

// start opens an element.
func (d *dump) start(t xml.StartElement) error {
	d.path += "/" + t.Name.Local
	d.depth++
	switch {
	case d.depth == 1 && (d.rooted || d.path != dumpRoot):
		return d.fail("<%.100s>, want one <mediawiki>, the root of a dump: leave other files out (--extensions)", t.Name.Local)
	case d.depth > deepestElement:
		return d.fail("<%.100s> is the %dth element inside another", t.Name.Local, d.depth)
	case d.keeps:
		return d.fail("<%.100s> where there is only text in a dump", t.Name.Local)
	}
	d.rooted = true
	switch d.path {
	case namespacePath:
		for _, a := range t.Attr {
			if a.Name.Local == "key" {
				d.key = a.Value
			}
		}
		d.keeps = !d.paged
	case pagePath:
		d.page, d.paged = page{}, true
	case redirectPath:
		d.page.redirect = true
	case spacePath, modelPath, revisionText:
		d.keeps = true
	}
	d.chars = d.chars[:0]
	return nil
}

// text collects text between tags.
func (d *dump) text(t xml.CharData) error {
	if d.depth == 0 && len(bytes.TrimSpace(t)) > 0 {
		return d.fail("text outside of <mediawiki>")
	}
	if d.keeps {
		d.chars = append(d.chars, t...)
	}
	return nil
}

// end closes an element. At the end of a page it yields the page.
func (d *dump) end(yield func(string, map[string]bool) error) error {
	path := d.path
	d.path = path[:strings.LastIndexByte(path, '/')]
	d.depth--
	d.keeps = false
	switch path {
	case namespacePath:
		if !d.paged && (d.key == fileSpace || d.key == categorySpace) {
			d.hidden[strings.ToLower(strings.TrimSpace(string(d.chars)))] = true
		}
	case spacePath:
		d.page.space = strings.TrimSpace(string(d.chars))
	case modelPath:
		d.page.model = strings.TrimSpace(string(d.chars))
	case revisionText:
		d.page.text = string(d.chars)
		d.in.left = longestPage
	case pagePath:
		d.in.left = longestPage
		p := d.page
		switch {
		case p.space == "":
			return d.fail("a page without <ns>: want a dump of MediaWiki 1.20 or later")
		case p.space == articleSpace && !p.redirect && p.text != "" && (p.model == "" || p.model == wikitext):
			return yield(p.text, d.hidden)
		}
	}
	return nil
}
