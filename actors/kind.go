package actors

// kindNames are the kinds of messages in words, in their order.
var kindNames = [...]string{"started", "down", "done", "tick", "open", "batch", "part", "activation", "cotangent",
	"credit", "closed", "load", "save", "queued", "durable", "halt", "failed", "report", "ready", "commit", "join",
	"rewind", "rewound", "keep", "buddy", "kept", "give", "state", "broken", "claim", "holding"}

// Kinds is how many kinds there are.
const Kinds = len(kindNames)

// Name is the kind in a word.
func (k Kind) Name() string { return kindNames[k] }
