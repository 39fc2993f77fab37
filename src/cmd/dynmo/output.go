package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"unicode/utf8"
)

// output passes on the text that a command prints and keeps the first error. So a lost line never
// counts as printed, unless its reader has closed the pipe. Only one goroutine may use it.
type output struct {
	to  io.Writer
	err error
}

// Write passes on b.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if o.err == nil && !errors.Is(err, syscall.EPIPE) {
		o.err = err
	}
	return n, err
}

// lost returns the error of the first failed write.
func (o *output) lost() error {
	if o.err != nil {
		return fmt.Errorf("output: %w", o.err)
	}
	return nil
}

const (
	// widest is the most columns of a line of an answer.
	widest = 100
	// beneath is the indent of a paragraph, behind its name.
	beneath = 14
)

// paragraph writes a name and a text beside it, in lines of at most widest columns. It does not
// break a line between --set and its setting.
func paragraph(out io.Writer, name, format string, values ...any) {
	text := fmt.Sprintf(format, values...)
	line, empty := fmt.Sprintf("%-*s", beneath, name), true
	if utf8.RuneCountInString(line+text) <= widest {
		fmt.Fprintln(out, line+text)
		return
	}
	words := strings.Fields(text)
	for i, word := range words {
		if i > 0 && words[i-1] == "--set" {
			continue
		}
		if word == "--set" && i+1 < len(words) {
			word += " " + words[i+1]
		}
		switch {
		case empty:
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > widest:
			fmt.Fprintln(out, line)
			line = strings.Repeat(" ", beneath)
		default:
			line += " "
		}
		line, empty = line+word, false
	}
	fmt.Fprintln(out, line)
}
