package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Epochs that say something else than where a member is.
const epochOfJoining, epochOfLeaving = 0, -1

// whileOthersMove is the pause between two heartbeats of a member that has nothing to do in a rebalance.
const whileOthersMove = 10 * time.Millisecond

// socketsOfAllGroups share what one run opens: members of a group share connections, as many as there are for it.
const socketsOfAllGroups = 64

// consumers is one group of the consumer protocol (KIP-848) that subscribes to the topic, all of whose partitions are to be
// owned. A round is one rebalance: one member leaves, another comes, and it ends when all members are at the epoch of the new
// one and every partition is owned by exactly one of them.
type consumers struct {
	options  *options
	name     string
	made     int
	lanes    []*lane
	owned    *ownership
	requests atomic.Int64
}

// lane is a connection with the members that heartbeat by it, one after the other.
type lane struct {
	c       *connection
	members []*consumer
}

// consumer is a member. It owns what it is told at once, and says so with its next heartbeat.
type consumer struct {
	id      string
	epoch   int32
	owned   []topicPartitions
	reports bool // what it owns has changed since its last heartbeat
}

func newConsumers(o *options, number int) *consumers {
	each := o.members / o.connections
	return &consumers{options: o, name: fmt.Sprintf("%s-new-%d-of-%d", o.groupPrefix, number, each)}
}

func (g *consumers) group() string { return g.name }

// begin connects, has all members join, and waits for the first whole assignment.
func (g *consumers) begin(address string) error {
	if err := g.connect(address); err != nil {
		return err
	}
	return g.assemble()
}

// connect opens the connections, and gives them members that have not joined.
func (g *consumers) connect(address string) error {
	_ = g.end()
	g.owned = newOwnership(g.name, g.options.partitions)
	count := g.options.members / g.options.connections
	for range min(count, max(1, socketsOfAllGroups/g.options.connections)) {
		c, err := dial(address, g.options.login, g.options.deadline)
		if err != nil {
			return err
		}
		g.lanes = append(g.lanes, &lane{c: c})
	}
	for number := range count {
		l := g.lanes[number%len(g.lanes)]
		l.members = append(l.members, g.next())
	}
	return nil
}

// assemble has all members join, and waits for an assignment that is whole and stands still.
func (g *consumers) assemble() error {
	if err := g.eachLane(func(l *lane) error {
		for _, member := range l.members {
			if err := g.heartbeat(l.c, member); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	var highest int32
	for _, l := range g.lanes {
		for _, member := range l.members {
			highest = max(highest, member.epoch)
		}
	}
	return g.settle(highest)
}

// eachLane does it at the same time.
func (g *consumers) eachLane(do func(*lane) error) error {
	failures := make([]error, len(g.lanes))
	var running sync.WaitGroup
	for number, l := range g.lanes {
		running.Add(1)
		go func() {
			defer running.Done()
			failures[number] = do(l)
		}()
	}
	running.Wait()
	return errors.Join(failures...)
}

// next is a member that has not joined, with an id that no member had.
func (g *consumers) next() *consumer {
	g.made++
	return &consumer{id: fmt.Sprintf("%s-%d", g.name, g.made), reports: true}
}

// end of the connections; members that are there leave.
func (g *consumers) end() error {
	err := g.eachLane(func(l *lane) error {
		for _, member := range l.members {
			if member.epoch > 0 {
				member.epoch = epochOfLeaving
				_, _ = l.c.call(consumerHeartbeatRequest(g.name, g.options.topic, member))
			}
		}
		return l.c.Close()
	})
	g.lanes = nil
	return err
}

// step is one rebalance.
func (g *consumers) step() error {
	l := g.lanes[g.made%len(g.lanes)]
	leaver := l.members[0]
	leaver.epoch = epochOfLeaving
	if _, err := g.ask(l.c, leaver); err != nil {
		return err
	}
	if err := g.owned.move(leaver.id, leaver.owned, nil); err != nil {
		return err
	}
	comer := g.next()
	l.members = append(l.members[1:], comer)
	if err := g.heartbeat(l.c, comer); err != nil {
		return err
	}
	return g.settle(comer.epoch)
}

// settle has all members heartbeat until they are at this epoch or behind it, and everything is owned.
func (g *consumers) settle(epoch int32) error {
	deadline := time.Now().Add(g.options.setUpTime)
	var settled atomic.Int64 // lanes whose members are all at the epoch
	return g.eachLane(func(l *lane) error { return g.settleLane(l, epoch, &settled, deadline) })
}

func (g *consumers) settleLane(l *lane, epoch int32, settled *atomic.Int64, deadline time.Time) error {
	for all := false; ; {
		// a member that is at the epoch has given everything back, and may still wait for what others have
		if all && settled.Load() == int64(len(g.lanes)) && g.owned.isWhole() {
			return nil
		}
		if time.Now().After(deadline) {
			if err := g.owned.complaint(); err != nil {
				return err
			}
			return &ownershipError{g.name, fmt.Sprintf("not all members have come to epoch %d, though each partition has an owner", epoch)}
		}
		behind, moved := 0, false
		for _, member := range l.members {
			before := member.epoch
			if err := g.heartbeat(l.c, member); err != nil {
				return err
			}
			moved = moved || member.reports || member.epoch != before
			if member.epoch < epoch || member.reports {
				behind++
			}
		}
		if behind == 0 && !all {
			all = true
			settled.Add(1)
		}
		if !moved {
			time.Sleep(whileOthersMove)
		}
	}
}

// heartbeat of a member, which takes what it is told.
func (g *consumers) heartbeat(c *connection, member *consumer) error {
	answer, err := g.ask(c, member)
	if err != nil {
		return err
	}
	member.epoch = answer.epoch
	member.reports = answer.assigned
	if answer.assigned {
		before := member.owned
		member.owned = answer.topics
		return g.owned.move(member.id, before, member.owned)
	}
	return nil
}

func (g *consumers) ask(c *connection, member *consumer) (consumerAnswer, error) {
	g.requests.Add(1)
	body, err := c.call(consumerHeartbeatRequest(g.name, g.options.topic, member))
	if err != nil {
		return consumerAnswer{}, err
	}
	return readConsumerHeartbeat(body)
}

// consumerHeartbeats are those of members in a group of the consumer protocol that has settled, one after the other.
type consumerHeartbeats struct {
	settled *consumers
	frames  [][]byte
	at      int
}

func newConsumerHeartbeats(o *options, number int) *consumerHeartbeats {
	return &consumerHeartbeats{settled: newConsumers(o, number)}
}

func (h *consumerHeartbeats) group() string { return h.settled.name }

func (h *consumerHeartbeats) begin(c *connection) error {
	if err := h.settled.begin(c.RemoteAddr().String()); err != nil {
		return err
	}
	h.frames = h.frames[:0]
	for _, l := range h.settled.lanes {
		for _, member := range l.members {
			h.frames = append(h.frames, consumerHeartbeatRequest(h.settled.name, h.settled.options.topic, member))
		}
		l.c.Close()
	}
	return nil
}

func (h *consumerHeartbeats) request() []byte {
	h.at = (h.at + 1) % len(h.frames)
	return h.frames[h.at]
}

func (h *consumerHeartbeats) check(body []byte) error {
	_, err := readConsumerHeartbeat(body)
	return err
}

type topicPartitions struct {
	id         [16]byte
	partitions []int32
}

// consumerHeartbeatRequest says all that a joining member has to, and of others what has changed.
func consumerHeartbeatRequest(group, topic string, m *consumer) []byte {
	joins := m.epoch == epochOfJoining
	e := newFlexibleRequest(apiConsumerGroupHeartbeat, versionConsumerGroupHeartbeat)
	e.compactString(group)
	e.compactString(m.id)
	e.int32(m.epoch)
	e.compactNull() // instance id
	e.compactNull() // rack
	if joins {
		e.int32(sessionTimeout)
		e.compactLength(1)
		e.compactString(topic)
	} else {
		e.int32(-1)
		e.compactNull()
	}
	e.compactNull() // regular expression
	e.compactNull() // assignor
	if m.reports && m.epoch != epochOfLeaving {
		e.compactLength(len(m.owned))
		for _, each := range m.owned {
			e.b = append(e.b, each.id[:]...)
			e.compactLength(len(each.partitions))
			for _, partition := range each.partitions {
				e.int32(partition)
			}
			e.noTags()
		}
	} else {
		e.compactNull()
	}
	e.noTags()
	return e.frame()
}

// consumerAnswer: `assigned` says whether the answer has an assignment, which may be of nothing.
type consumerAnswer struct {
	epoch    int32
	assigned bool
	topics   []topicPartitions
}

func readConsumerHeartbeat(body []byte) (consumerAnswer, error) {
	d := decoder{b: body}
	d.tags()  // of the header
	d.int32() // throttle time
	code := kafkaError(d.int16())
	d.compactString() // message
	d.compactString() // member id
	answer := consumerAnswer{epoch: d.int32()}
	d.int32() // heartbeat interval
	if answer.assigned = d.take(1)[0] == 1; answer.assigned {
		for range d.compactLength() {
			topic := topicPartitions{}
			copy(topic.id[:], d.take(len(topic.id)))
			for range d.compactLength() {
				topic.partitions = append(topic.partitions, d.int32())
			}
			d.tags()
			answer.topics = append(answer.topics, topic)
		}
		d.tags()
	}
	if d.bad {
		return consumerAnswer{}, errShort
	}
	if code != 0 {
		return consumerAnswer{}, code
	}
	return answer, nil
}
