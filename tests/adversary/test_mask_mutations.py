"""Masks with one protection left out: a named check must notice each, or it proves nothing where it passes.

Every check is a test that stands elsewhere. It is run as it is (it must pass), then with a part of eris replaced by one
that lacks the protection: then it must fail by its own assertion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from eris.errors import Reason
from eris.peer.node import Node
from eris.privacy import masking
from eris.privacy.masking import MaskKey
from eris.protocol import aggregator, coordinator, steps, unmasker
from eris.protocol import member as contributing
from eris.protocol import sums as sums_module
from eris.protocol.aggregator import Aggregator
from eris.protocol.open_round import OpenRound
from eris.protocol.round_plan import RoundPlan
from eris.protocol.sums import Sums
from eris.protocol.unmasker import Unmasker
from tests.adversary import test_masking as adversary
from tests.adversary import test_receipts as receipts
from tests.adversary import test_replayed_noise as replayed
from tests.peer import test_mask_keys as keys
from tests.privacy import test_masking as pads
from tests.protocol import test_liveness as liveness
from tests.protocol import test_masked_rounds as rounds
from tests.protocol import test_sums as sums
from tests.protocol import test_unmasker as unmasking

Check = Callable[[], None]
Patch = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, tuple[Check, Patch]] = {}
ONE = {"case": liveness.CASE, "how": liveness.beyond_the_limit}
PAD = {"case": liveness.CASE, "how": liveness.under_another_pad}


def noticed_by(check: Check) -> Callable[[Patch], Patch]:
    """Register a mistake under the name of its function."""

    def register(patch: Patch) -> Patch:
        MUTATIONS[patch.__name__] = check, patch
        return patch

    return register


def in_a_folder(check: Callable[[Path], None]) -> Check:
    """Return a check that is given a folder of its own each time."""

    def checked() -> None:
        with TemporaryDirectory() as folder:
            check(Path(folder))

    return checked


def with_a_patch(check: Callable[[Path, pytest.MonkeyPatch], None]) -> Callable[[Path], None]:
    """Return a check that patches for itself."""

    def checked(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            check(folder, patch)

    return checked


@noticed_by(rounds.test_what_an_aggregator_adds_up_is_not_what_members_sent_until_the_pads_are_off)
def no_pad_at_all(patch: pytest.MonkeyPatch) -> None:
    def bare(upload: Any, plan: Any, key: Any) -> Any:
        return replace(upload, checks=masking.check_words(), nonce=bytes(16))

    patch.setattr(contributing, "masked", bare)
    patch.setattr(unmasker, "add_pads", lambda seeds, *arrays: None)


@noticed_by(adversary.test_other_values_of_one_member_in_one_round_have_another_pad)
def one_nonce_for_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unmasker, "fresh_nonce", lambda: bytes(16))


@noticed_by(partial(pads.test_whatever_differs_gives_another_pad, {"plan": bytes(32)}))
def a_pad_that_knows_no_plan(patch: pytest.MonkeyPatch) -> None:
    spelled = masking.PadPurpose.spelled
    patch.setattr(masking.PadPurpose, "spelled", lambda self: spelled(replace(self, plan=b"")))


@noticed_by(pads.test_one_stream_runs_over_values_buffers_and_check_words)
def buffers_in_a_ring_of_32_bits(patch: pytest.MonkeyPatch) -> None:
    whole = masking._each_block

    def narrow(arrays: Any, seeds: Any, combine: Any) -> None:
        whole([array.view(np.uint32) for array in arrays], seeds, combine)

    patch.setattr(masking, "_each_block", narrow)


@noticed_by(partial(rounds.test_pads_of_another_set_do_not_come_off, 0))
def nobody_looks_at_the_check_words(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(aggregator, "sum_checks", lambda words, contributors: True)
    patch.setattr(steps, "possible", lambda *given, **options: True)


@noticed_by(adversary.test_a_member_beyond_the_limit_costs_the_shard_and_is_an_alarm)
def no_alarm_for_an_impossible_sum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "possible", lambda *given, **options: True)


@noticed_by(unmasking.test_one_set_a_shard_the_same_again_gets_the_same)
def a_second_set_is_unmasked(patch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Unmasker, cut: Any, now: float) -> Any:
        self._cuts, self._answers = {}, {}
        return answer(self, cut, now)

    answer = Unmasker.unmask
    patch.setattr(Unmasker, "unmask", forgetful)
    patch.setattr(Sums, "allows", lambda *given: True)


@noticed_by(unmasking.test_before_the_deadline_only_the_whole_set)
def an_aggregator_chooses_before_the_deadline(patch: pytest.MonkeyPatch) -> None:
    begin = Unmasker.begin

    def at_once(self: Unmasker, plan: Any, now: float) -> None:
        begin(self, plan, now)
        self.whole_until = -1.0

    patch.setattr(Unmasker, "begin", at_once)


@noticed_by(unmasking.test_two_thirds_and_not_fewer)
def any_set_is_large_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unmasker, "_check_set", lambda *given: None)


@noticed_by(unmasking.test_weights_that_hide_nobody_are_refused)
def heads_count_and_weights_do_not(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unmasker, "effective_contributors", lambda plan, members: float(len(members)))


@noticed_by(unmasking.test_after_a_restart_it_abstains)
def a_restarted_unmasker_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unmasker, "abstain", lambda self, plan: self.begin(plan, 0.0))


@noticed_by(unmasking.test_a_forged_cut_is_refused)
def cuts_without_signatures(patch: pytest.MonkeyPatch) -> None:
    init = Unmasker.__init__
    patch.setattr(Unmasker, "__init__", lambda self, *given, verify=None, **options: init(self, *given, **options))


@noticed_by(unmasking.test_a_plan_that_was_not_agreed_is_sat_out_with_every_key_kept)
def an_unmasker_takes_any_plan(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("eris.protocol.unmasker.Agreement.check", lambda self, plan, recipe: None)


@noticed_by(unmasking.test_with_two_aggregators_it_waits_for_both_and_for_equal_cuts)
def two_aggregators_may_cut_differently(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unmasker.Cut, "agrees", lambda self, other: True)


@noticed_by(adversary.test_a_coordinator_that_pairs_a_peer_with_itself_or_leaves_masks_out_is_refused)
def nobody_checks_the_pairs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(contributing, "check_pairs", lambda plan, recipe: None)


@noticed_by(adversary.test_a_pair_that_would_see_too_much_is_below_the_floor)
def the_floor_counts_single_peers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("eris.protocol.floor.coalitions", lambda plan: {})


@noticed_by(rounds.test_a_member_whose_key_the_plan_does_not_show_sends_nothing)
def any_key_of_ours_will_do(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(contributing.Member, "_require_own_key", lambda self, plan: None)


@noticed_by(partial(pads.test_a_key_that_shares_no_secret_is_refused, bytes(32)))
def secrets_that_are_all_zeros(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MaskKey, "agree", lambda self, other: bytes(32))


@noticed_by(keys.test_what_a_key_was_is_gone_once_a_plan_shows_the_next)
def keys_that_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MaskKey, "erase", lambda self: None)


@noticed_by(receipts.test_every_receipt_of_a_masked_contribution_is_signed_and_honest_manifests_keep_to_it)
def receipts_without_signatures(patch: pytest.MonkeyPatch) -> None:
    receipt = Aggregator._receipt
    patch.setattr(Aggregator, "_receipt", lambda self, header: replace(receipt(self, header), signature=""))


@noticed_by(sums.test_sets_that_differ_enough_two_by_two_may_not_do_so_three_by_three)
def sums_are_compared_two_by_two(patch: pytest.MonkeyPatch) -> None:
    def pairwise(sets: Any) -> int:
        every = [set(each) for each in sets]
        return min([len(a ^ b) for i, a in enumerate(every) for b in every[:i]] + [len(each) for each in every])

    patch.setattr("eris.protocol.sums.fewest", pairwise)
    patch.setattr(sums, "fewest", pairwise)


@noticed_by(sums.test_lowest_bits_are_shown_where_values_are_not)
def sums_are_combined_as_if_they_were_real_numbers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("eris.protocol.sums._rank_of_bits", sums_module._rank)


@noticed_by(partial(sums.test_a_lost_round_is_not_summed_again_without_a_few, 3, 1.0, 12, False))
def three_are_enough_however_many_take_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RoundPlan, "least_apart", property(lambda self: self.min_contributors))
    patch.setattr(sums_module, "_third", lambda sets: 0)


@noticed_by(partial(sums.test_a_lost_round_is_not_summed_again_without_a_few, 3, 6.0, 9, False))
def sums_again_count_heads_and_no_weights(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unmasker, "_hides", lambda self, plan: lambda members: True)


@noticed_by(adversary.test_p_alone_cannot_keep_a_sum_to_itself_and_take_it_off_the_next_one)
def unmaskers_do_not_report_what_they_gave_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sums, "told", lambda self, plan: ())


@noticed_by(adversary.test_p_alone_cannot_keep_a_sum_to_itself_and_take_it_off_the_next_one)
def a_lost_round_makes_another_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("eris.protocol.sums._ENOUGH", 0.0)


@noticed_by(partial(adversary.test_p_with_half_of_the_model_cannot_publish_zeros_and_sum_the_same_again, 1))
def a_shard_of_zeros_counts_as_a_step(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(contributing.Member, "_moves", lambda self, verdict, shard: True)


@noticed_by(sums.test_a_third_is_of_those_drawn_though_a_third_of_them_sits_out)
def a_third_is_of_those_that_do_not_sit_out(patch: pytest.MonkeyPatch) -> None:
    third = property(lambda self: max(self.min_contributors, len(self.participants) // 3))
    patch.setattr(RoundPlan, "least_apart", third)


@noticed_by(sums.test_no_combination_shows_fewer_than_a_third_of_the_largest_sum)
def sums_are_held_to_the_last_plan_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sums_module, "_third", lambda sets: 0)


@noticed_by(replayed.test_prevented_two_sums_of_a_round_that_share_their_noise)
def shares_of_noise_stay_when_a_round_is_planned_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "noise_draw", lambda recipe, plan: 0)


@noticed_by(replayed.test_prevented_a_member_that_changes_while_the_noise_of_all_others_stays)
def only_who_changes_draws_its_share_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "noise_draw", lambda recipe, plan: 0)


@noticed_by(partial(adversary.test_another_term_of_a_coordinator_lets_q_answer_no_second_set, True))
def answers_are_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sums, "_read", lambda self, path: None)


@noticed_by(adversary.test_a_run_that_goes_back_and_plays_on_without_one_member_does_not_show_that_one)
def a_round_that_is_played_again_counts_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sums, "_first", lambda self, start: hash(start.chain))


@noticed_by(in_a_folder(adversary.test_a_coordinator_that_takes_the_run_back_finds_no_q_that_has_forgotten))
def what_others_unmasked_is_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sums, "keep", lambda self, *, sync=False: None)


@noticed_by(adversary.test_a_coordinator_that_leaves_out_what_q_reported_is_refused_by_q)
def an_unmasker_does_not_look_for_its_answers_in_the_verdict(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sums, "left_out", lambda self, verdict: ())


@noticed_by(adversary.test_p_cannot_publish_a_sum_as_that_of_others_than_q_gave_pads_for)
def the_aggregator_alone_says_who_is_in_a_sum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenRound, "_unmasked_otherwise", lambda self, manifest: False)


@noticed_by(partial(adversary.test_q_unmasks_nothing_behind_its_report, True))
def an_unmasker_answers_behind_its_report(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sums, "is_told", lambda self, plan: False)


@noticed_by(partial(liveness.test_after_two_alarms_a_rotating_third_sits_out_until_the_liar_is_among_it, liar=1, **ONE))
def the_last_third_never_gets_its_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("eris.protocol.sums._independent", len)


@noticed_by(partial(liveness.test_after_two_alarms_a_rotating_third_sits_out_until_the_liar_is_among_it, liar=3, **PAD))
def wrong_pads_are_no_alarm(patch: pytest.MonkeyPatch) -> None:
    for module in (coordinator, contributing):
        patch.setattr(module, "is_alarm", lambda lost: Reason.OUT_OF_RANGE.value in lost)


@noticed_by(liveness.test_a_pair_that_fails_moves_on_and_who_fails_in_three_pairs_has_neither_duty_any_more)
def who_fails_in_three_pairs_keeps_its_duties(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordinator, "_MOST_FAILED_PAIRS", 10**9)


@noticed_by(liveness.test_no_pair_that_failed_is_formed_again_while_there_are_others)
def a_pair_that_failed_is_formed_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordinator.Coordinator, "_untried", lambda self, home, peers: peers)


@noticed_by(liveness.test_wrong_pads_are_an_alarm_and_move_the_pair)
def a_shard_that_was_not_unmasked_stays_with_its_pair(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordinator.Coordinator, "_note_pairs", lambda self, plan, verdict: None)


@noticed_by(
    in_a_folder(with_a_patch(keys.test_over_the_network_plans_show_other_keys_and_the_model_is_that_of_fixed_point))
)
def keys_that_are_never_renewed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "_renew_key", lambda self, plan: None)


@noticed_by(unmasking.test_an_earlier_plan_shown_again_makes_nobody_forget_what_was_said)
def an_earlier_plan_makes_it_forget(patch: pytest.MonkeyPatch) -> None:
    def forget(self: Unmasker, plan: Any) -> None:
        self.plan, self._abstains, self._cuts, self._answers = plan, True, {}, {}

    patch.setattr(Unmasker, "abstain", forget)


@noticed_by(rounds.test_where_one_of_two_aggregators_is_away_neither_the_other_nor_the_unmasker_waits)
def it_waits_for_an_aggregator_that_is_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unmasker, "without", lambda self, peers, *, away=True: None)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_protection_that_is_left_out_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, apply = MUTATIONS[name]
    check()
    apply(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


def test_there_are_enough_of_them() -> None:
    assert len(MUTATIONS) >= 25
