package record

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"dynmo/src/input"
)

// redraw is the least time between two drawings of the bar: as fast as people
// read, and rarely enough to cost nothing.
const redraw = 100 * time.Millisecond

// Progress tells people how far a run is: a bar on a terminal, log lines
// elsewhere, as in the log of a batch job. It is used by one goroutine.
type Progress struct {
	out   io.Writer
	every int                      // iterations between log lines
	bar   *progressbar.ProgressBar // nil where out is no terminal
	drawn time.Time                // when the bar was last drawn
	err   error                    // the first of a line
}

// NewProgress returns the progress of a run of so many iterations, with a log
// line after every so many of them.
func NewProgress(out *os.File, iterations, every int) *Progress {
	return newProgress(out, term.IsTerminal(int(out.Fd())), iterations, every)
}

func newProgress(out io.Writer, terminal bool, iterations, every int) *Progress {
	p := &Progress{out: out, every: every}
	if terminal {
		p.bar = progressbar.NewOptions(iterations,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(),
			progressbar.OptionClearOnFinish())
	}
	return p
}

// Step reports an iteration that has ended.
func (p *Progress) Step(l Log) {
	switch {
	case p.bar != nil:
		if time.Since(p.drawn) < redraw && l.Iteration < l.Iterations {
			return
		}
		p.drawn = time.Now()
		p.bar.Describe(strings.Join(append([]string{fmt.Sprintf("loss %.4f, %.1f ms, %.0f tokens/s", l.Loss, 1e3*l.Seconds, l.TokensPerSecond)}, l.Model...), ", "))
		_ = p.bar.Set(l.Iteration) // a terminal that is gone must not end the run
	case l.Iteration%p.every == 0 || l.Iteration == l.Iterations:
		p.Say(l.String())
	}
}

// Say prints a line, fit for a terminal, above the bar if there is one.
func (p *Progress) Say(text string) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	if _, err := fmt.Fprintln(p.out, input.VisibleLines(strings.TrimRight(text, "\n"))); p.err == nil {
		p.err = err
	}
	if p.bar != nil && !p.bar.IsFinished() {
		_ = p.bar.RenderBlank()
	}
}

// Close removes the bar. A line that could not be printed is an error.
func (p *Progress) Close() error {
	if p.bar != nil && !p.bar.IsFinished() {
		_ = p.bar.Clear()
	}
	if p.err != nil {
		return fmt.Errorf("log: %w", p.err)
	}
	return nil
}
