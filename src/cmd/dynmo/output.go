package main

import (
	"fmt"
	"io"
)

// output passes on what a command prints and keeps the first error, so that a line that
// was lost is never taken for one that was printed. It is used by one goroutine.
type output struct {
	to  io.Writer
	err error
}

// Write passes on b.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// lost returns the error of what was not printed.
func (o *output) lost() error {
	if o.err != nil {
		return fmt.Errorf("output: %w", o.err)
	}
	return nil
}
