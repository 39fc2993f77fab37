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

// patience is how long work runs before the bar appears: users wait that long without a sign.
const patience = 2 * time.Second

// lastLine is the last line of a terminal, which is redrawn again and again. Errors of the terminal
// are ignored: a closed terminal must not end the work.
type lastLine struct {
	out  io.Writer
	text string // the text that the terminal shows now
}

// draw replaces the line by a text, cut to the width of the terminal. "" clears the line.
func (l *lastLine) draw(text string) {
	if l.text != "" {
		fmt.Fprintf(l.out, "\r%*s\r", len([]rune(l.text)), "")
	}
	if f, is := l.out.(*os.File); is {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 { // 0: the terminal does not know its width
			runes := []rune(text)
			text = string(runes[:min(len(runes), width-1)])
		}
	}
	l.text = text
	fmt.Fprint(l.out, text)
}

// gauge draws the share of the work that is done.
func gauge(done, total int64) string {
	const width = 30
	return fmt.Sprintf("%3d%% [%-*s]", 100*done/total, width, strings.Repeat("=", int(width*done/total)))
}

// Bar is a progress bar on a terminal, with the time left. It appears once the work has taken two
// seconds. Without a terminal it draws nothing; neither does a nil Bar.
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

// NewBar returns a bar for work that begins now. Close ends the bar.
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

// run draws the bar until the work ends. The first drawing comes `after` the begin.
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

// draw draws the bar with the share of the total. While the total is not known, it draws only the
// time that has passed.
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

// Show sets the amount of work that is done and the total. Any goroutine may call it.
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

// Close removes the bar for good. It may be called several times.
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
