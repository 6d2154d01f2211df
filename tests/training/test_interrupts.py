import os
import signal
import threading
from contextlib import nullcontext

from thresher.training.loop import SafeInterrupt, deferred_interrupts


def press():
    os.kill(os.getpid(), signal.SIGINT)


def run(*actions, immediate=False):
    """Do things while Ctrl-C is held back; returns those that were done and what was raised."""
    done = []
    try:
        with deferred_interrupts() as interrupts:
            for action in actions:
                with interrupts.immediate() if immediate else nullcontext():
                    {"press": press, "ask": interrupts.raise_if_pending, "step": lambda: None}[action]()
                done.append(action)
    except KeyboardInterrupt as raised:
        return done, type(raised)
    finally:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return done, None


def test_waits_until_asked():
    assert run("ask", "press", "step", "ask", "step") == (["ask", "press", "step"], SafeInterrupt)


def test_a_second_press_does_not_wait():
    assert run("press", "step", "press", "step") == (["press", "step"], KeyboardInterrupt)


def test_a_pending_interrupt_is_raised_at_the_end():
    assert run("step", "press", "step") == (["step", "press", "step"], KeyboardInterrupt)


def test_immediate_parts_need_not_wait():
    assert run("step", "press", "step", immediate=True) == (["step"], SafeInterrupt)


def test_other_threads_and_ignored_signals_are_left_alone():
    handlers = []

    def elsewhere():
        with deferred_interrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
