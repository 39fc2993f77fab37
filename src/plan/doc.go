// Package plan has the values that say what was decided and why. Package policy decides, package search
// finds layouts, and records keep the values. Their JSON names, and the values of Kept, are in
// events.jsonl and checkpoints.
package plan
