package main

import (
	"fmt"
	"sync"
)

// partition of a topic, as members of a group of the consumer protocol own it.
type partition struct {
	topic  [16]byte
	number int32
}

func (p partition) String() string {
	t := p.topic
	return fmt.Sprintf("partition %d of topic %x-%x-%x-%x-%x", p.number, t[:4], t[4:6], t[6:8], t[8:10], t[10:])
}

// ownershipError says what is wrong with who owns what. It does not pass by itself.
type ownershipError struct{ group, what string }

func (e *ownershipError) Error() string { return fmt.Sprintf("group %s: %s", e.group, e.what) }

// ownership says which member of a group owns which partition of the one topic that it is subscribed to. What members say to
// their coordinator is true here before they say it, so no partition has two owners at any moment.
type ownership struct {
	group      string
	partitions int // all of the topic
	lock       sync.Mutex
	owners     map[partition]string
	whole      bool // each partition has an owner
}

func newOwnership(group string, partitions int) *ownership {
	return &ownership{group: group, partitions: partitions, owners: map[partition]string{}}
}

// move takes from a member what it owned, and gives it what it owns from now on, unless another one has that.
func (o *ownership) move(member string, before, after []topicPartitions) error {
	o.lock.Lock()
	defer o.lock.Unlock()
	for _, topic := range before {
		for _, number := range topic.partitions {
			delete(o.owners, partition{topic.id, number})
		}
	}
	for _, topic := range after {
		for _, number := range topic.partitions {
			p := partition{topic.id, number}
			if owner, owned := o.owners[p]; owned {
				return &ownershipError{o.group, fmt.Sprintf("%v is given to member %s while member %s owns it", p, member, owner)}
			}
			o.owners[p] = member
		}
	}
	o.whole = false
	if len(o.owners) >= o.partitions {
		if err := o.check(); err != nil {
			return err
		}
		o.whole = true
	}
	return nil
}

func (o *ownership) isWhole() bool {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.whole
}

// complaint gives why it is not whole.
func (o *ownership) complaint() error {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.check()
}

// check that all partitions of the topic have an owner, and no others do; none has two, as move has seen to it.
func (o *ownership) check() error {
	p := partition{}
	for p = range o.owners {
		break
	}
	for number := range o.partitions {
		p.number = int32(number)
		if _, owned := o.owners[p]; !owned {
			return &ownershipError{o.group, fmt.Sprintf("%v has no owner, %d of %d partitions have one", p, len(o.owners), o.partitions)}
		}
	}
	if len(o.owners) > o.partitions {
		return &ownershipError{o.group, fmt.Sprintf("%d partitions have an owner, the topic has %d", len(o.owners), o.partitions)}
	}
	return nil
}
