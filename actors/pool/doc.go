// Package pool is the life of members that do tasks and may be lost: processes that draw answers, judge them or are an
// environment. Each sits at a place, whose driver begins and ends it; who gets which task is a [Desk]'s matter. It is a
// state machine without I/O: actors/crew runs it for real, sim/pools in virtual time under faults.
//
// Of what it promises:
//
//	P-1  A task has one answer: none is lost, and none answered twice.
//	P-2  Only a member that has a task answers it: what comes late, twice or from another changes nothing.
//	P-3  A place has one member at a time: none begins before the one before it has ended.
//	P-4  A member with a task that says nothing for Silence is ended, and one that has no result for Longest; others
//	     have its tasks then.
//	P-5  A task that Queue.Most members were lost with has an error for its answer, after so many and not before.
//	P-6  A place in which Tries members in a row end without a result is closed. The pool is over with the last place,
//	     and not before.
//	P-7  A member that keeps its times is never ended, whatever others do.
//	P-8  A task is drawn with the weights that its member was given last, and within the staleness of its schedule.
//	P-9  No task waits while a place could take it, and a task that may fail no more is tried by a fresh member.
//	P-10 The pool ends: where members answer, every task is answered.
//	P-11 A task is refused at once where Queue.Limit others wait, and only there.
package pool
