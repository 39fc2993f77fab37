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

// everyLine is the time between two lines of a Bar without a terminal.
const everyLine = time.Minute

// Bar is a progress bar on a terminal, with the time left. It appears once the work has taken two
// seconds. Without a terminal it writes a line every minute. A nil Bar shows nothing.
type Bar struct {
	what        string
	every       time.Duration // between two drawings
	began       time.Time
	done, total atomic.Int64
	stop        chan struct{}
	once        sync.Once
	ended       sync.WaitGroup

	mutex sync.Mutex // of what follows
	line  lastLine   // unused without a terminal
	plain io.Writer  // nil with a terminal
	shown [2]int64   // done and total, as they were drawn last
}

// NewBar returns a bar for work that begins now. Close ends the bar.
func NewBar(out *os.File, what string) *Bar {
	if !term.IsTerminal(int(out.Fd())) {
		return newLines(out, what, everyLine)
	}
	return newBar(out, what, patience)
}

func newBar(out io.Writer, what string, after time.Duration) *Bar {
	b := &Bar{what: what, began: time.Now(), every: redraw, line: lastLine{out: out}, stop: make(chan struct{})}
	b.ended.Go(func() { b.run(after) })
	return b
}

// newLines returns a Bar without a terminal.
func newLines(out io.Writer, what string, every time.Duration) *Bar {
	b := &Bar{what: what, began: time.Now(), every: every, plain: out, stop: make(chan struct{})}
	b.ended.Go(func() { b.run(every) })
	return b
}

// run draws the bar until the work ends. The first drawing comes `after` the begin.
func (b *Bar) run(after time.Duration) {
	for wait := time.After(after); ; wait = time.After(b.every) {
		select {
		case <-b.stop:
			return
		case <-wait:
			b.draw()
		}
	}
}

// draw draws the bar with the share of the total, which never becomes smaller. While the total is not known,
// it draws only the time that has passed.
func (b *Bar) draw() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	total, ago := b.total.Load(), time.Since(b.began).Seconds()
	done := min(b.done.Load(), total)
	if last := b.shown; float64(done)*float64(last[1]) < float64(last[0])*float64(total) {
		done, total = last[0], last[1]
	}
	b.shown = [2]int64{done, total}
	share := func() string { return gauge(done, total) }
	write := b.line.draw
	if b.plain != nil {
		share = func() string { return fmt.Sprintf("%d %%", 100*done/total) }
		write = func(text string) { fmt.Fprintln(b.plain, text) }
	}
	switch {
	case total <= 0:
		write(fmt.Sprintf("%s, for %s", b.what, Duration(ago)))
	case done <= 0:
		write(fmt.Sprintf("%s, for %s %s", b.what, Duration(ago), share()))
	default:
		write(fmt.Sprintf("%s, about %s left %s", b.what, Duration(ago/float64(done)*float64(total-done)), share()))
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
	if b == nil || b.plain != nil {
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
