package verdict

import "io"

// Page writes findings as a page.
func Page(w io.Writer, findings []Finding, pairs []Pair) error { return nil }
