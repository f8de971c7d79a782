"""What tests of the bench stage share: a device on a clock of its own, and a point on it."""

from warpwave.inside.benchmarks import Point


class FakeDevice:
    """Events on a clock that only work moves: what a GPU's timeline looks like to the timer."""

    def __init__(self):
        self.now = 0.0
        self.log = []
        device = self

        class Event:
            def __init__(self, enable_timing):
                self.at = None

            def record(self, stream=None):
                self.at = device.now

            def elapsed_time(self, end):
                return end.at - self.at

        self.Event = Event

    def current_stream(self):
        return None

    def synchronize(self):
        pass

    def flush(self):
        self.now += 0.5
        self.log.append("flush")

    def work(self, milliseconds):
        self.now += milliseconds
        self.log.append("work")


def point(function, unit="GB/s"):
    return Point("add/N=8", "add", "triton", unit, {"N": 8}, function, {"N": 8, "provider": "triton"})
