// Package layouts finds pipeline layouts for models that other programs train. In come the costs of a
// model's layers and the trainer's rules. Out come the layouts with the shortest simulated step, in the
// trainer's own notation.
package layouts
