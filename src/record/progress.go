package record

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"dynmo/src/files"
)

// redraw is the least time between two drawings of the bar: as fast as people read, and too rare to
// cost time.
const redraw = 100 * time.Millisecond

// Progress shows users the progress of a run. It draws a bar on a terminal, and prints log lines
// elsewhere, as in the log of a batch job. Only one goroutine may use it.
type Progress struct {
	out   io.Writer
	every int       // iterations between log lines
	bar   *lastLine // nil if out is no terminal
	drawn time.Time // when the bar was last drawn
}

// NewProgress returns the progress of a run, with a log line after each `every` iterations.
func NewProgress(out *os.File, every int) *Progress {
	return newProgress(out, term.IsTerminal(int(out.Fd())), every)
}

func newProgress(out io.Writer, terminal bool, every int) *Progress {
	p := &Progress{out: out, every: every}
	if terminal {
		p.bar = &lastLine{out: out}
	}
	return p
}

// Step reports an iteration that has ended.
func (p *Progress) Step(l Log) {
	last := l.Iteration == l.Iterations
	switch {
	case p.bar != nil && last:
		p.bar.draw("")
	case p.bar != nil:
		if time.Since(p.drawn) < redraw {
			return
		}
		p.drawn = time.Now()
		p.bar.draw(fmt.Sprintf("%s (%d/%d, %s left) %s", gauge(int64(l.Iteration), int64(l.Iterations)), l.Iteration, l.Iterations, Duration(l.Left),
			strings.Join(append([]string{fmt.Sprintf("%s, %.1f ms, %.0f tokens/s", l.loss(), 1e3*l.Seconds, l.TokensPerSecond)}, l.Model...), ", ")))
	case l.Iteration%p.every == 0 || last:
		p.Say(l.String())
	}
}

// Say prints a line with control characters made harmless, above the bar if there is one.
func (p *Progress) Say(text string) {
	bar := ""
	if p.bar != nil {
		bar = p.bar.text
		p.bar.draw("")
	}
	// A log that cannot be written ends no run.
	fmt.Fprintln(p.out, files.VisibleLines(strings.TrimRight(text, "\n")))
	if bar != "" {
		p.bar.draw(bar)
	}
}

// Close removes the bar.
func (p *Progress) Close() {
	if p.bar != nil {
		p.bar.draw("")
	}
}
