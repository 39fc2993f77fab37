//go:build !cgo

package nvml

import "fmt"

// Library is the management library. This binary cannot open it.
type Library struct{}

// Open returns an error: this binary was built without cgo.
func Open() (*Library, error) {
	return nil, fmt.Errorf("%w: this binary was built without cgo", ErrAbsent)
}

// Close does nothing.
func (l *Library) Close() error { return nil }

// Inventory returns an error: this binary was built without cgo.
func (l *Library) Inventory() ([]GPU, error) { return nil, ErrAbsent }

// Health returns an error: this binary was built without cgo.
func (l *Library) Health() ([]Health, error) { return nil, ErrAbsent }

// Meter returns an error: this binary was built without cgo.
func (l *Library) Meter(uuid string) (*Meter, error) { return nil, ErrAbsent }

// Meter measures energy. This binary cannot make one.
type Meter struct{}

// Joules returns an error: this binary was built without cgo.
func (m *Meter) Joules() (float64, error) { return 0, ErrAbsent }
