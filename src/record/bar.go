package record

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// patience is how long work goes on without a word: people wait so long.
const patience = 2 * time.Second

// Bar tells people on a terminal that work goes on, how far it is and how long it will take, once it has
// taken two seconds. Elsewhere it is silent. A nil Bar is too.
type Bar struct {
	what        string
	began       time.Time
	done, total atomic.Int64
	stop        chan struct{}
	once        sync.Once
	ended       sync.WaitGroup

	mutex sync.Mutex // of what follows
	out   io.Writer
	bar   *progressbar.ProgressBar // nil before the first drawing
	known bool                     // the total of bar is known
}

// NewBar returns the bar of work that begins now. Close ends it.
func NewBar(out *os.File, what string) *Bar {
	if !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return newBar(out, what, patience)
}

func newBar(out io.Writer, what string, after time.Duration) *Bar {
	b := &Bar{what: what, began: time.Now(), out: out, stop: make(chan struct{})}
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
	total := b.total.Load()
	if known := total > 0; b.bar == nil || known != b.known {
		b.known = known
		options := []progressbar.Option{
			progressbar.OptionSetWriter(b.out),
			progressbar.OptionSetDescription(b.what),
			progressbar.OptionSetWidth(30),
			progressbar.OptionSetSpinnerChangeInterval(0), // it turns when it is drawn
			progressbar.OptionClearOnFinish(),
		}
		if known {
			b.bar = progressbar.NewOptions64(total, append(options, progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))...)
		} else {
			b.bar = progressbar.NewOptions64(-1, options...)
		}
	}
	// A terminal that is gone must not end the work.
	if !b.known {
		_ = b.bar.RenderBlank()
		return
	}
	done := min(b.done.Load(), total)
	if done > 0 {
		left := time.Since(b.began).Seconds() / float64(done) * float64(total-done)
		b.bar.Describe(fmt.Sprintf("%s, about %s left", b.what, Duration(left)))
	}
	b.bar.ChangeMax64(total)
	_ = b.bar.Set64(min(done, total-1)) // at the total it would end by itself
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
	if b.bar != nil {
		_ = b.bar.Clear()
	}
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
