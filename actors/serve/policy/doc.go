// Package policy answers robots with a trained policy, over the protocol of openpi
// (github.com/Physical-Intelligence/openpi, packages/openpi-client): a websocket on which the server first says what it
// serves, and then answers each observation with a chunk of actions. Both are maps in msgpack whose arrays are NumPy's.
//
// A connection has a goroutine, which reads an observation, prepares it and waits for its actions, so that a
// client has one observation under way at most. Each replica of the policy is an actor of its own
// (trained.Actor, which one goroutine owns) and takes what waits in one bounded queue, several observations
// at once. Everything has a bound: connections, the bytes of a message, how long one may take to come or to
// be read, how many observations wait and for how long.
package policy
