"""The circuit breaker stops calls to a failing service and tries again after a pause."""

from herenow.kit.circuit_breaker import CircuitBreaker
from herenow.kit.retry import Backoff

LIMIT, SHORTEST, LONGEST = 3, 0.5, 5.0


def breaker():
    return CircuitBreaker(LIMIT, Backoff(SHORTEST, LONGEST))


def test_after_some_failures_a_circuit_breaker_allows_no_call_for_a_growing_time():
    circuit = breaker()
    for _ in range(LIMIT - 1):
        assert circuit.allows(0.0)
        circuit.failed(0.0)
    assert circuit.allows(0.0)
    now, pauses = 0.0, []
    for _ in range(6):
        circuit.failed(now)
        began = now
        while not circuit.allows(now):
            now += 0.25
        pauses.append(now - began)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_an_open_circuit_breaker_allows_one_trial_call_after_its_pause():
    circuit = breaker()
    for _ in range(LIMIT):
        circuit.failed(0.0)
    assert circuit.allows(LONGEST)
    assert not circuit.allows(LONGEST)
    circuit.abandoned()
    assert circuit.allows(LONGEST)
    circuit.succeeded()
    assert all(circuit.allows(LONGEST) for _ in range(3))


def test_a_success_resets_the_failure_count_of_a_circuit_breaker():
    circuit = breaker()
    for _ in range(3):
        for _ in range(LIMIT - 1):
            circuit.failed(0.0)
        circuit.succeeded()
    assert circuit.allows(0.0)
