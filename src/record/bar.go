package record

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

// patience is how long work goes on without a word: people wait so long.
const patience = 2 * time.Second

// lastLine is the last line of a terminal, which is drawn again and again. A terminal that is
// gone must not end the work.
type lastLine struct {
	out  io.Writer
	text string // that stands there
}

// draw puts a text in place of the line, as much as the terminal is wide. "" clears the line.
func (l *lastLine) draw(text string) {
	if l.text != "" {
		fmt.Fprintf(l.out, "\r%*s\r", len([]rune(l.text)), "")
	}
	if f, is := l.out.(*os.File); is {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 { // 0 of one that does not know
			runes := []rune(text)
			text = string(runes[:min(len(runes), width-1)])
		}
	}
	l.text = text
	fmt.Fprint(l.out, text)
}

// gauge draws which share of the work is done.
func gauge(done, total int64) string {
	const width = 30
	return fmt.Sprintf("%3d%% [%-*s]", 100*done/total, width, strings.Repeat("=", int(width*done/total)))
}

// Bar is a progress bar on a terminal, with the time left. It appears once work has taken two
// seconds. Where there is no terminal it is silent, and so is a nil Bar.
type Bar struct {
	what        string
	began       time.Time
	done, total atomic.Int64
	stop        chan struct{}
	once        sync.Once
	ended       sync.WaitGroup

	mutex sync.Mutex // of line
	line  lastLine
}

// NewBar returns the bar of work that begins now. Close ends it.
func NewBar(out *os.File, what string) *Bar {
	if !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return newBar(out, what, patience)
}

func newBar(out io.Writer, what string, after time.Duration) *Bar {
	b := &Bar{what: what, began: time.Now(), line: lastLine{out: out}, stop: make(chan struct{})}
	b.ended.Go(func() { b.run(after) })
	return b
}

// run draws until the work ends.
func (b *Bar) run(after time.Duration) {
	for wait := time.After(after); ; wait = time.After(redraw) {
		select {
		case <-b.stop:
			return
		case <-wait:
			b.draw()
		}
	}
}

// draw draws the bar: of a part of the total, or, while that is not known, that
// time goes by.
func (b *Bar) draw() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	total, ago := b.total.Load(), time.Since(b.began).Seconds()
	done := min(b.done.Load(), total)
	switch {
	case total <= 0:
		b.line.draw(fmt.Sprintf("%s, for %s", b.what, Duration(ago)))
	case done <= 0:
		b.line.draw(fmt.Sprintf("%s %s", b.what, gauge(0, total)))
	default:
		left := Duration(ago / float64(done) * float64(total-done))
		b.line.draw(fmt.Sprintf("%s, about %s left %s", b.what, left, gauge(done, total)))
	}
}

// Show says that so much of all is done. It may be called by any goroutine.
func (b *Bar) Show(done, total int64) {
	if b != nil {
		b.done.Store(done)
		b.total.Store(total)
	}
}

// Clear removes the bar from the terminal until it is drawn again.
func (b *Bar) Clear() {
	if b == nil {
		return
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.line.draw("")
}

// Close removes the bar for good. It may be called again.
func (b *Bar) Close() {
	if b == nil {
		return
	}
	b.once.Do(func() {
		close(b.stop)
		b.ended.Wait()
		b.Clear()
	})
}
