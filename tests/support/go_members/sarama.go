package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

var saramaAssignors = map[string]sarama.BalanceStrategy{
	"range": sarama.NewBalanceStrategyRange(), "roundrobin": sarama.NewBalanceStrategyRoundRobin(),
	"sticky": sarama.NewBalanceStrategySticky(),
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	return config
}

// Idempotent: a sarama that starts may close a connection that it has just opened ("broker not connected") while a record is
// under way, and sends that again. Also seen without a gateway.
func saramaProduce(_ context.Context, a asked, first, count int) {
	config := saramaConfig()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1 // that needs it
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(strings.Split(a.bootstrap, ","), config)
	must(err)
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for number := first; number < first+count; number++ {
		messages = append(messages, &sarama.ProducerMessage{Topic: a.topic, Value: sarama.StringEncoder(strconv.Itoa(number))})
	}
	must(producer.SendMessages(messages))
}

type saramaHandler struct{ topic string }

func (h saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	say("assigned", len(session.Claims()[h.topic]))
	return nil
}

func (saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			say("record", string(message.Value))
			session.MarkMessage(message, "")
			session.Commit()
		}
	}
}

func saramaConsume(ctx context.Context, a asked) {
	config := saramaConfig()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{saramaAssignors[a.assignor]}
	config.Consumer.Group.Session.Timeout = a.sessionTimeout
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.InstanceId = a.instance
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(strings.Split(a.bootstrap, ","), a.group, config)
	must(err)
	defer group.Close()
	for ctx.Err() == nil {
		_ = group.Consume(ctx, []string{a.topic}, saramaHandler{a.topic}) // it ends with each rebalance
	}
}
