// Package tenants trains several adapters of one model at once: LoRA adapters lie side by side in slots, and sequences
// of several slots go through the model together, each row with its own adapter.
//
// # What always holds
//
//   - The bits of a slot's log-probabilities, gradients and weights depend on what was asked of that slot alone: not on
//     other slots, nor on their number, nor on what was computed together.
//   - Work whose loss is no number leaves its slot without a gradient, and other slots as they would be.
package tenants
