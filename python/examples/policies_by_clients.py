# %% [markdown]
# # One SSD, two disks: which policy?
#
# The load of a file server (`netapp-like`, after Wu and Reddy's table II) on one Intel X25-M and two disks with 15,000 turns
# a minute, while more and more clients ask. `ssd-only` leaves the disks idle, `stripe` gives every device as much as the others,
# and `wardrop` moves data until all devices answer alike.
#
# Run the cells one by one in Jupyter, VS Code or Spyder, or all of them:
# `python policies_by_clients.py [FIGURE.png] [key=value ...]`, as in `duration=5s`.

# %%
import sys

import matplotlib.pyplot as plt

import braid

POLICIES = ["wardrop", "ssd-only", "stripe"]
words = [word for word in sys.argv[1:] if not word.startswith("-")] if "ipykernel" not in sys.modules else []
options = dict(word.split("=", 1) for word in words if "=" in word)
figure_path = next((word for word in words if "=" not in word), "policies_by_clients.png")

# %% The study: every policy under every number of clients, on all cores
runs = braid.sweep(
    ssd="20GiB,model=x25-m",
    hdd="73GB,model=mba3073,count=2",
    workload="netapp-like",
    clients=[1, 2, 4, 8, 16],
    policy=POLICIES,
    progress=True,
    **{"warm_up": "60s", "duration": "60s", **options},
)

# %% The figure
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for policy in POLICIES:
    part = runs.where(policy=policy)
    left.plot(part["clients"], part["throughput_bytes_per_second"] / 1e6, marker="o", label=policy)
    right.plot(part["clients"], part["all.latency_ns_mean"] / 1e6, marker="o", label=policy)
left.set(xlabel="clients", ylabel="throughput, MB/s", ylim=(0, None), xscale="log", xticks=[1, 2, 4, 8, 16])
right.set(xlabel="clients", ylabel="mean latency, ms", ylim=(0, None), xscale="log", xticks=[1, 2, 4, 8, 16])
for axis in (left, right):
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.minorticks_off()
    axis.grid(alpha=0.3)
left.legend()
figure.savefig(figure_path, dpi=150)

# %% Where wardrop put the requests: share of the SSD, by number of clients
wardrop = runs.where(policy="wardrop")
for clients, share in zip(wardrop["clients"], wardrop["devices.d0.requests_share"]):
    print(f"{clients:3d} clients: {share:.0%} of requests on the SSD")
print(f"the figure is in {figure_path}")
